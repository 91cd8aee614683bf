"""The form for a new sweep, as it is answered: its lists, its mistakes, what would run, and completions."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from recording import open_recorder
from serving import Api, serving
from waiting import wait_until

from sweeps.service.queue import jobs
from sweeps.service.web.submit import _words
from sweeps.service.web.submit_form import split_overrides
from sweeps.tracking.mlflow_characters import LONGEST_TAG


def selected(page: str, group: str) -> str:
    """Text that a list shows."""
    chosen = re.search(rf'name="group:{group}".*?</select>', page, re.DOTALL)
    assert chosen is not None
    options = re.findall(r"<option value=\"([^\"]*)\"[^>]*?( selected)?>([^<]*)", chosen[0])
    return unescape(next((text for _, is_chosen, text in options if is_chosen), options[0][2]))


def mistake(page: str, field: str) -> str:
    found = re.search(rf'id="{field}-mistake"[^>]*><p class="(?:mistake|note bad)"[^>]*>(.*?)</p>', page, re.DOTALL)
    return unescape(found[1]) if found else ""


def check(client: TestClient, **fields: Any) -> str:
    return client.post("/submit", data={"conf": "digits", "then": "preview", **fields}).text


def test_overrides_of_a_form_are_split_at_blanks_outside_of_quotes() -> None:
    text = """ data.path='my texts.txt' 'train.lr=tag(log, interval(1, 2))'\r\n"model.path=a b" x="don't" y=' """
    assert split_overrides(text) == [
        *("data.path='my texts.txt'", "train.lr=tag(log, interval(1, 2))", "model.path=a b", 'x="don\'t"', "y='"),
    ]


def test_a_command_that_was_cut_in_its_record_has_no_words() -> None:
    command = "python -m sweeps run conf=digits" + " train.lr=0.125" * 1000
    assert len(_words(command)) == 1005
    assert _words(command[:LONGEST_TAG]) == _words(command[:8000]) == []


def test_groups_are_lists_with_the_configs_own_options_and_their_descriptions(client: TestClient) -> None:
    page = client.get("/submit").text
    assert selected(page, "model") == "conv_net (the config's)"
    assert selected(page, "search/sampler") == "curves (the config's)"
    assert "A small convolutional network for images." in page
    assert "Image classification on scikit-learn&#39;s digits" in page


def test_a_chosen_option_is_part_of_what_would_run(client: TestClient) -> None:
    fields = {"group:search/sampler": "random", "overrides": "search.num_trials=5\n\nmodel.dropout=0.1"}
    page = check(client, **fields)
    assert selected(page, "search/sampler") == "random"
    assert "<b>5 trials</b>" in page
    assert "sampler random" in page
    assert "python -m sweeps run conf=digits search/sampler=random search.num_trials=5 model.dropout=0.1" in page
    assert "<code>model.dropout</code> has a fixed value, and is not searched" in page


def test_the_space_is_a_table(client: TestClient) -> None:
    text = re.sub(r"\s*<[^>]+>\s*", "|", check(client))
    assert re.search(r"\|train\.lr\|+float, log\|+0\.0001 to 0\.1\|+0\.001\|", text)
    assert re.search(r"\|train\.momentum\|+if train\.optimizer = sgd\|+float\|+0\.8 to 0\.99\|+0\.9\|", text)


def test_what_it_will_take_is_told_with_the_earlier_sweeps_that_tell_it(client: TestClient) -> None:
    page = check(client, overrides="cluster.num_cpus=4")
    assert "2 workers with 2 CPU together" in page
    assert "2 on this machine" in page
    assert "took</dd>" in page
    assert '<a href="/sweeps/made-by-hand">' in page
    priced = check(client, overrides="search.stop.cost={limit: 7, per_cpu_hour: 0.25}")
    assert "at most 7, at 0.25 for an hour of a CPU" in priced


def test_other_peoples_sweeps_tell_nothing(tmp_path: Path) -> None:
    with serving(tmp_path) as api:
        api.token("eve", "admin")
        ada = api.client(api.token("ada", "run"))
        page = check(ada)
        assert '<a href="/sweeps/theirs">' in page  # Ada's own
        assert "made-by-hand" not in page
        assert '"/sweeps/mine"' not in page
        reader = api.client(api.token("bob", "read"))
        assert reader.post("/submit", data={"conf": "digits", "then": "preview"}).status_code == 403
        assert "data-preview" not in reader.get("/submit").text


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"group:model": "conv_nett"}, "group-model", "conv_nett"),
        ({"overrides": "seed=1\ntrain.lrr=1"}, "overrides", "Line 2: train.lrr"),
        ({"overrides": "seed=1\ntrain.optimizer=sg"}, "overrides", "Line 2: train.optimizer='sg': must be"),
        ({"overrides": "train.lr"}, "overrides", "'train.lr' is not an override"),
        ({"conf": "digitss"}, "conf", "did you mean digits"),
        ({"conf": ""}, "conf", "pattern"),
        ({"name": "a/b"}, "name", "a/b"),
        ({"priority": "x"}, "priority", "whole number"),
        ({"group:search/sampler": "grid"}, "form", "a grid needs a step"),
    ],
    ids=str,
)
def test_a_mistake_is_at_its_field(client: TestClient, fields: dict[str, str], field: str, words: str) -> None:
    page = check(client, **fields)
    assert words in mistake(page, field)
    if field == "overrides":
        control = re.search(r"<textarea[^>]* name=\"overrides\"[^>]*>([^<]*)", page)
        assert control is not None
        assert 'aria-describedby="overrides-hint overrides-mistake" aria-invalid="true"' in control[0]
        assert control[1].strip() == fields["overrides"], "what was typed stays"


def test_a_mistake_is_an_error_for_a_button_and_none_while_a_person_types(client: TestClient) -> None:
    data = {"conf": "digits", "overrides": "train.lrr=1"}
    for then, status, alerts in (("preview", 200, 0), ("check", 422, 1), ("submit", 422, 1)):
        answer = client.post("/submit", data={**data, "then": then})
        assert (answer.status_code, answer.text.count('role="alert"')) == (status, alerts)


def test_a_group_that_the_config_does_not_have_is_added(client: TestClient) -> None:
    page = check(client, **{"conf": "ray_train_function", "group:train": "classifier"})
    assert "+train=classifier" in page or "task.kind=function ignores this section" in unescape(page)


def test_the_same_sweep_again_has_its_options_in_the_lists(api: Api, client: TestClient) -> None:
    fields = {"conf": "digits", "name": "again", "group:search/sampler": "random", "overrides": "seed=3"}
    assert client.post("/submit", data=fields).status_code == 303
    with api.service.database.connect() as connection:
        request = jobs.of_sweep(connection, "again")[0].request
    assert request["overrides"][:2] == ["search/sampler=random", "seed=3"]
    assert 'href="/submit?like=again"' in client.get("/sweeps/again").text
    page = client.get("/submit?like=again").text
    configs = re.search(r'name="conf".*?</select>', page, re.DOTALL)
    assert configs is not None
    assert '<option value="digits" selected>' in configs[0]
    assert selected(page, "search/sampler") == "random"
    assert ">seed=3</textarea>" in page


def test_a_sweep_that_was_started_in_python_again_has_its_overrides(api: Api, client: TestClient) -> None:
    lines = ["search/sampler=random", "data.path='it\\'s \"mine\"'", "train.lr=tag(log, interval(1e-5, 1e-2))"]
    recorder = open_recorder(api.uri, "in-python", command=f"sweeps.run('digits', {lines!r})")
    assert not recorder.close("finished")
    wait_until(lambda: "in-python" in client.get("/").text, 30)
    page = client.get("/submit?like=in-python").text
    assert selected(page, "search/sampler") == "random"
    assert unescape(page).count("\n".join(lines[1:])) == 1


def test_too_long_a_text_is_refused(client: TestClient) -> None:
    assert client.post("/submit", data={"conf": "digits", "name": "x" * 501}).status_code == 422
    assert client.post("/submit", data={"conf": "digits", "overrides": "x" * 100_001}).status_code == 422


def test_keys_and_values_are_completed_as_in_the_shells(client: TestClient) -> None:
    def words(typed: str, conf: str = "digits") -> list[str]:
        answer = client.get("/submit/complete", params={"typed": typed, "conf": conf})
        assert answer.status_code == 200
        return [each["text"] for each in answer.json()]

    assert words("train.op") == ["train.optimizer="]
    assert words("train.optimizer=s") == ["train.optimizer=sgd"]
    assert "space.train.lr." in words("space.")
    assert "search/sampler=" in words("search")
    assert "model=tiny_llama" in words("model=t")
    assert words("train.optimizer=", "none such")


def test_completion_reads_no_file_that_is_not_a_config(tmp_path: Path, client: TestClient) -> None:
    (tmp_path / "secret.yaml").write_text("# A secret.\nkey: value\n")
    for typed in (f"conf={tmp_path}/", "conf=.", f"../{tmp_path}=", f"{tmp_path}/=s", "../../etc=", "model/../../=x"):
        for conf in ("digits", f"{tmp_path}/secret.yaml", "../digits"):
            assert client.get("/submit/complete", params={"typed": typed, "conf": conf}).json() == []

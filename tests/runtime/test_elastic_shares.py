"""Which trials get how many workers, if their number is a range."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sweeps.runtime.elastic_shares import WorkerShares

ANY = range(2, 9)
DOUBLING = (2, 4, 8)


def shares(places: int = 8, expected: int = 1) -> WorkerShares:
    made = WorkerShares()
    made.set_room(places, expected)
    return made


def claim(these: WorkerShares, trial: str, numbers: Sequence[int] = ANY, remaining_s: float = math.inf) -> int | None:
    return these.claim(trial, numbers, lambda: remaining_s)


def decide(these: WorkerShares, *, fixed: Sequence[str] = ()) -> dict[str, int]:
    """Decide, and let the trials change at once."""
    decided = dict(these.decide(lambda trial: trial not in fixed))
    for trial in decided:
        these.moved(trial)
    return decided


def shares_of_a_survivor() -> WorkerShares:
    """Shares in which the trial ``a`` may take over the workers of one that has ended."""
    these = shares(expected=2)
    for trial in "ab":
        claim(these, trial, DOUBLING)
    these.release("b")
    these.set_room(8, 1)
    return these


def test_trials_that_are_to_run_at_a_time_share_the_workers_equally() -> None:
    two, four, three = shares(expected=2), shares(expected=4), shares(expected=3)
    assert [claim(two, trial) for trial in "ab"] == [4, 4]
    assert [claim(four, trial) for trial in "abcd"] == [2, 2, 2, 2]
    assert [claim(three, trial) for trial in "abc"] == [2, 2, 2]
    assert decide(three) == {"a": 3, "b": 3}, "the remainder is used, too"


def test_a_trial_starts_on_what_is_free_if_that_is_less_than_its_share() -> None:
    these = shares(expected=1)
    assert claim(these, "a") == 8
    these.release("a")
    assert claim(these, "b", [3]) == 3
    assert claim(these, "c", [2]) == 2
    these.set_room(8, 2)
    assert claim(these, "d") == 2, "three are free"
    assert these.free == 1


def test_the_next_growth_is_known_when_no_trial_is_to_come() -> None:
    these = shares(expected=4)
    for trial, seconds in zip("abcd", (50.0, 80.0, 70.0, 60.0), strict=True):
        assert these.next_growth(lambda _: True) is None, "others have still to begin"
        claim(these, trial, DOUBLING, remaining_s=seconds)
    these.set_room(8, 4, to_come=1)
    assert these.next_growth(lambda _: True) is None, "another one will take the workers of the next that ends"
    these.set_room(8, 4)
    assert these.next_growth(lambda _: True) == ("b", 4)
    assert these.next_growth(lambda trial: trial != "b") == ("c", 4)
    assert not these.has_more_than_expected
    these.set_room(8, 3)
    assert these.has_more_than_expected
    these.release("a")
    assert dict(these.decide(lambda _: True)) == {"b": 4}
    assert these.next_growth(lambda _: True) is None, "one changes"
    these.moved("b")
    assert these.next_growth(lambda _: True) == ("c", 4)


def test_no_growth_is_prepared_that_would_not_be_worth_it() -> None:
    these = shares(expected=2)
    claim(these, "a", DOUBLING, remaining_s=10.0)
    claim(these, "b", DOUBLING, remaining_s=15.0)
    assert these.next_growth(lambda _: True) is None


def test_only_a_number_that_divides_the_batch_is_given() -> None:
    these = shares(places=7)
    assert claim(these, "a", DOUBLING) == 4
    assert these.free == 3
    assert decide(these) == {}


def test_survivors_grow_when_no_trial_is_to_come() -> None:
    these = shares(expected=4)
    for trial in "abcd":
        claim(these, trial, DOUBLING)
    these.release("d")
    assert decide(these) == {}, "another trial is about to come"
    these.set_room(8, 3)
    assert decide(these) == {"a": 4}
    these.release("b")
    these.set_room(8, 2)
    assert decide(these) == {"c": 4}
    these.release("c")
    these.set_room(8, 1)
    assert decide(these) == {"a": 8}


def test_the_trial_that_takes_longest_grows_first() -> None:
    these = shares(expected=3)
    for trial, remaining_s in (("a", 100.0), ("b", 500.0), ("c", 200.0)):
        claim(these, trial, DOUBLING, remaining_s)
    assert decide(these) == {"b": 4}


def test_a_trial_that_is_almost_done_does_not_begin_again_for_more_workers() -> None:
    these = shares(expected=4)
    for trial, remaining_s in (("a", 12.0), ("b", 40.0), ("c", 1000.0), ("d", 1000.0)):
        claim(these, trial, DOUBLING, remaining_s)
    these.release("c")
    these.release("d")
    these.set_room(8, 2)
    assert decide(these) == {"b": 4}, "20 s are more than the 10 s of a resize, 6 s are not"
    these.observe_resize(3.0)
    assert decide(these) == {"a": 4}


def test_trials_give_workers_back_when_another_one_waits() -> None:
    these = shares(expected=1)
    assert claim(these, "a") == 8
    these.set_room(8, 2)
    assert claim(these, "b") is None
    assert these.has_waiting, "until it has claimed again"
    assert decide(these) == {"a": 4}
    assert claim(these, "b") == 4
    assert decide(these) == {}


def test_no_worker_is_promised_twice_while_trials_change() -> None:
    these = shares_of_a_survivor()
    assert these.decide(lambda _: True) == {"a": 8}
    assert these.free == 0, "those that it takes are no longer free"
    assert claim(these, "c", DOUBLING) is None
    these.moved("a")
    assert claim(these, "a", DOUBLING) == 8
    these.set_room(8, 2)
    assert these.decide(lambda _: True) == {"a": 4}
    assert claim(these, "c", DOUBLING) is None, "it has not stopped yet"
    these.moved("a")
    assert claim(these, "c", DOUBLING) == 4
    assert claim(these, "a", DOUBLING) == 4


def test_trials_that_cannot_change_now_are_left_alone() -> None:
    these = shares(expected=2)
    claim(these, "a")
    claim(these, "b")
    these.set_room(8, 3)
    assert claim(these, "c") is None
    assert decide(these, fixed="a") == {"b": 2}
    assert claim(these, "c") == 2


def test_a_trial_that_ends_while_it_is_to_change_keeps_nothing() -> None:
    these = shares_of_a_survivor()
    these.decide(lambda _: True)
    these.stay("a")
    assert these.free == 4
    these.release("a")
    assert these.free == 8


def test_trials_shrink_when_a_node_leaves() -> None:
    these = shares(expected=2)
    claim(these, "a")
    claim(these, "b")
    these.set_room(4, 2)
    these.release("b")  # its workers died with the node
    assert decide(these) == {}
    assert claim(these, "b") is None
    assert decide(these) == {"a": 2}
    assert claim(these, "b") == 2


def test_a_trial_that_was_to_grow_gets_less_if_a_node_has_left_meanwhile() -> None:
    these = shares_of_a_survivor()
    assert these.decide(lambda _: True) == {"a": 8}
    these.set_room(6, 1)
    these.moved("a")
    assert claim(these, "a", DOUBLING) == 4

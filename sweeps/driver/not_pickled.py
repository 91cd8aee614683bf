"""Objects that are excluded from pickling: Tune pickles its searchers, schedulers and callbacks for a restore that
Sweeps does not use, since it rebuilds a search from the study and the record."""

from __future__ import annotations


class NotPickled:
    """Becomes an empty object when pickled. It may therefore hold objects that cannot or must not be pickled: a study,
    actors of this driver, a store whose address contains a password."""

    def __reduce__(self) -> tuple[type[object], tuple[()]]:
        return object, ()

"""Objects that are not pickled: Tune pickles its searchers, schedulers and callbacks for a restore that Sweeps does not
use, since it rebuilds a search from the study and the record."""

from __future__ import annotations


class NotPickled:
    """Becomes an empty object when it is pickled. It may hold what cannot or must not be pickled: a study, actors of
    this driver, a store whose address contains a password."""

    def __reduce__(self) -> tuple[type[object], tuple[()]]:
        return object, ()

"""All planted bugs."""

from __future__ import annotations

from typing import Final

from tests.mutants.archive import ARCHIVE
from tests.mutants.core import CORE
from tests.mutants.costs import COSTS
from tests.mutants.dialects import DIALECTS
from tests.mutants.edge import EDGE
from tests.mutants.jetstream import JETSTREAM
from tests.mutants.journal import JOURNAL
from tests.mutants.mqcloud import MQCLOUD
from tests.mutants.mutant import Mutant
from tests.mutants.places import PLACES
from tests.mutants.pushed import PUSHED
from tests.mutants.semq import SEMQ
from tests.mutants.settled import SETTLED

MUTANTS: Final[list[Mutant]] = [
    *CORE,
    *JETSTREAM,
    *JOURNAL,
    *EDGE,
    *COSTS,
    *PLACES,
    *SETTLED,
    *DIALECTS,
    *MQCLOUD,
    *SEMQ,
    *PUSHED,
    *ARCHIVE,
]

"""All doors, in the order of the table."""

from __future__ import annotations

from attack.api import API, CORE
from attack.arguments import ARGUMENTS
from attack.bundles import BUNDLES
from attack.capi import CAPI
from attack.files import FILES
from attack.forks import FORK
from attack.jobs import DISK, DISTURBANCES, KILLS, SPECIALS, WRITERS
from attack.pages import PAGES
from attack.results import RESULTS
from attack.server import SERVER

DOORS = (
    FILES,
    ARGUMENTS,
    RESULTS,
    API,
    CORE,
    CAPI,
    SERVER,
    BUNDLES,
    KILLS,
    DISTURBANCES,
    WRITERS,
    SPECIALS,
    DISK,
    FORK,
    PAGES,
)

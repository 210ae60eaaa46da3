"""Compares rule listings in the kernel with their import in Sluice. The import must have reported every difference."""

import os

import pytest

from lab import paths
from lab.oracle.listings import Listings

pytestmark = pytest.mark.sluice

FOLDER = os.path.join(paths.ROOT, "lab", "listings")


@pytest.mark.parametrize("name", sorted(os.listdir(FOLDER)))
def test_import_means_what_the_listing_says(binary, name):
    unnamed, named, played = Listings("/run/lab/listings", binary).compared(os.path.join(FOLDER, name), 1)
    told = [f"{probe}\n  kernel: {kernel}\n  sluice: {sluice}\n  met: {met}" for probe, kernel, sluice, met in unnamed[:5]]
    assert not told, "\n".join(told)
    assert played > 20
    # Reports of the import explain at most half of the probes.
    assert named < played / 2

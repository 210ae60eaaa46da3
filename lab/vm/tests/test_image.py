"""Tests two runs that start simultaneously, in a checkout in which no guest was started before."""

import os
import shutil
import subprocess

from lab import paths
from lab.vm import image

RUNS = 3


def test_runs_at_one_time_start_from_one_image_that_stays(tmp_path, binary):
    kernel = image.Kernel()
    for part in ["boot", "lib"]:
        shutil.copytree(os.path.join(kernel.folder, part), tmp_path / "vm" / "kernel-cloud" / part, symlinks=True)
    for name in ["dep", "alias", "symbols"]:
        os.remove(tmp_path / "vm" / "kernel-cloud" / "lib" / "modules" / kernel.release / f"modules.{name}")
    runs = [
        subprocess.Popen([os.path.join(paths.ROOT, "lab", "vm-image"), binary], env={**os.environ, "CARGO_TARGET_DIR": str(tmp_path)},
                         stdout=subprocess.PIPE, text=True)
        for _ in range(RUNS)
    ]
    images = [run.communicate()[0].split() for run in runs]
    assert [0] * RUNS == [run.returncode for run in runs]
    assert [images[0]] * RUNS == images
    assert all(os.path.exists(path) for path in images[0])


def test_image_of_other_parts_does_not_take_away_one_in_use(tmp_path, binary):
    other = tmp_path / "other"
    shutil.copy(binary, other)
    one, another = image.build(binary)[1], image.build(str(other))[1]
    assert one != another
    assert os.path.exists(one) and os.path.exists(another)
    os.remove(another)

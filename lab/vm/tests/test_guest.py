"""Tests what happens when a guest no longer answers."""

import pytest

from lab.vm import image
from lab.vm.guest import Guest, Hung


def test_guest_that_does_not_answer_says_where_it_is_and_is_given_up(folder, binary):
    guest = Guest("silent", folder, image.build(binary))
    try:
        guest.wait()
        with pytest.raises(Hung, match="(?s)sleep 600 does not end within 2 s.*RIP=.*NMI received for unknown reason"):
            guest.sh("sleep 600", timeout=2)
        with pytest.raises(Hung, match="does not answer any more"):
            guest.sh("true")
    finally:
        guest.stop()
        # This hang is not a fault: the test does not need another guest.
        Guest.hangs.remove("guest silent during sleep 600")

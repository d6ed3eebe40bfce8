"""How many clients may be logging in to an instance at a time: gateway and engines agree on it.

They count against no limit of its size, so an engine has places for them beside those.
"""

from typing import Final

MAX: Final = 32

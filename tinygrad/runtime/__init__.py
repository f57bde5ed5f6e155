"""Device files: ``ops_<name>.py`` holds the class ``<Name>Device`` of the device ``<NAME>``.

In:   the name of a device.
Out:  its class, imported when the device is first used.
Why:  a package of its own can add a device by shipping ``tinygrad/runtime/ops_<name>.py`` anywhere on ``sys.path``.
"""

import os
import sys

for _folder in sys.path:
    _candidate = os.path.join(_folder, "tinygrad", "runtime")  # noqa: PTH118  runs at import, before pathlib is loaded
    if _candidate not in __path__ and os.path.isdir(_candidate):  # noqa: PTH112  as above
        __path__.append(_candidate)

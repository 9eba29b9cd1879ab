"""Exit code 0 if the broker of this container is ready for work, over http or https. With the
argument `live` it need not be ready: a standby of replicated messages is not.

It listens on port 15555 or ZBUS_PORT. Which of both it speaks stands in options that may come from
anywhere, so both are tried; https first, since a plain port says nothing of that in the log. The
certificate is of another name than 127.0.0.1, and is not checked.
"""

from __future__ import annotations

import os
import ssl
import sys
import urllib.request

CHECK = sys.argv[1] if len(sys.argv) > 1 else "ready"
URL = f"://127.0.0.1:{os.environ.get('ZBUS_PORT') or 15555}/_health/{CHECK}"


def main() -> int:
    """Ask; says why not."""
    anyone = ssl.create_default_context()
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    why = ""
    for scheme in ("https", "http"):
        try:
            urllib.request.urlopen(scheme + URL, timeout=2, context=anyone)
        except (OSError, ValueError) as error:  # no connection, another scheme, or not ready
            why += f"{scheme}: {error}\n"
        except Exception as error:  # what answers does not speak HTTP
            why += f"{scheme}: {type(error).__name__}\n"
        else:
            return 0
    sys.stderr.write(why)
    return 1


if __name__ == "__main__":
    sys.exit(main())

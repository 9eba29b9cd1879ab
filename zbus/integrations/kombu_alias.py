"""What makes kombu know `zbus://` as soon as zbus is installed.

kombu reads its transports from a table, and has no entry point for them. It has one for
serializers, `kombu.serializers`, which is loaded before Celery connects; so that is where this
module registers. It only adds a name to the table: a serializer that neither encodes nor decodes.
"""

from kombu.transport import TRANSPORT_ALIASES

TRANSPORT_ALIASES.setdefault("zbus", "zbus.integrations.kombu:Transport")

NO_SERIALIZER = (None, None, "application/x-zbus-none")

"""The dialect of Adf.QueueServer: transactional double-ended queues over WebSocket and HTTP."""

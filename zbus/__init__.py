"""zbus: a durable message broker that anything able to speak HTTP can use."""

__all__ = ["__version__"]

__version__ = "0.1.0"

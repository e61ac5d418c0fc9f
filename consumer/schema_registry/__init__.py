"""Confluent's schema registry, and the serializers and deserializers that use it."""

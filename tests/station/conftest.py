"""A station whose recogniser says what a test tells it to."""

from __future__ import annotations

"""Notifications about ended sweeps by webhook, Slack, e-mail and so on. A sweep never waits for a notification. Begin
with ``notifier``."""

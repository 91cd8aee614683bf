"""Telling people how sweeps have ended: webhooks, Slack and the like, e-mail. A sweep never waits for it."""

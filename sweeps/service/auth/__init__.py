"""Authentication and authorization: tokens, browser sessions, checks of every request, and what a config may reach.
Begin with ``auth``, which authenticates requests, and ``config_policy``, which checks configs."""

"""Who may do what: tokens, browser sessions, the guard before every request, and what a config may reach."""

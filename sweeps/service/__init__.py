"""The service: schedules, a queue of submitted sweeps, a REST API and web pages, in one process or several."""

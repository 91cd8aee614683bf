"""The service: schedules, a queue of submitted sweeps, a REST API and web pages, in one process or several. Begin with
``app_context``, which contains all parts of a process, and ``serve``, which runs them."""

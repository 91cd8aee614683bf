"""Every figure of a sweep, each defined once as a Plotly figure in the module of its name.

Begin with ``learning_curves.py``. ``sections.py`` lists the figures of a report. ``image_files.py`` draws any of them
into PNG, SVG or PDF files; ``report/page`` and the service's pages show them in a browser.
"""

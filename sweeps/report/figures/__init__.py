"""Every figure of a sweep, each defined once as a Plotly figure in the module of its name.

Begin with ``learning_curves.py``. ``sections.py`` lists the figures of a report. ``image_files.py`` draws any of them
into PNG, SVG or PDF files; ``report/page`` shows them in a browser; the service's pages draw the data of
``learning_curves.py`` and ``nights.py`` as SVG, since they show figures without JavaScript and in dark mode.
"""

"""Data sets: from files, from the Hugging Face hub, and from Python's standard library.

``sample_order.py`` makes the order of samples and ``loader.py`` the batches; ``text.py`` tokenizes, ``packing.py`` cuts
sequences, ``corpus.py`` holds text larger than memory.
"""

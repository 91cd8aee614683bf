"""Tables: rows with a target column, from files to the inputs of a model.

``table_files.py`` reads them, ``columns.py`` tells numbers from categories, ``split.py`` holds rows out,
``encoding.py`` learns what it needs of the training rows and turns any rows into arrays, ``metrics.py`` compares
predictions with the truth. All of them are free of torch.
"""

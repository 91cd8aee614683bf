"""Tables: rows with a target column, from files to the inputs of a model.

``table_files.py`` reads them, ``columns.py`` tells numbers from categories, ``split.py`` holds rows out,
``encoding.py`` learns an encoding from the training rows and converts any rows to arrays with it, ``metrics.py``
compares predictions with the truth. All of them are free of torch.
"""

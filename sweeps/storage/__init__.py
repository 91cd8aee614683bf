"""Storage without a folder that the machines of a cluster share: a sweep's folder in an object store.

``object_store.py`` is the store; ``committed_folder.py`` keeps folders in it that are complete or absent, as are
checkpoints; ``state_mirror.py`` keeps a copy of the driver's own files there; ``location.py`` says where a sweep's
folder is.
"""

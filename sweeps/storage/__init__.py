"""Storage of a sweep's folder in an object store, for clusters whose machines share no folder.

``object_store.py`` accesses the store; ``committed_folder.py`` keeps folders in it that are complete or absent, such as
checkpoints; ``state_mirror.py`` keeps a copy of the driver's own files there; ``location.py`` names the places of a
sweep's folder and its copies.
"""

"""Memory: what a training needs, what a worker may use, and the micro batch that fits, which ``out_of_memory`` halves
when memory runs out."""

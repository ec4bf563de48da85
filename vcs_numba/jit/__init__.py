"""How plain functions become kernels, where compiled kernels are kept, and the threads that run them."""

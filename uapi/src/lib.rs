//! The kernel's words: uverbs and mlx5 ioctl encoding, and the seam between provider and kernel.

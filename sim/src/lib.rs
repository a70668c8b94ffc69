//! A simulated ConnectX: firmware, engine, memory and wire, behind the kernel seam.

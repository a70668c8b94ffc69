/* What the owner of a queue orders for the device. */
#ifndef BARRIERS_H
#define BARRIERS_H

/*
 * Stores to memory come before those that follow, as the device sees them. An x86-64 processor keeps their
 * order; the compiler has to as well.
 */
static inline void to_device(void)
{
#ifdef __x86_64__
	__asm__ volatile("" ::: "memory");
#else
	__asm__ volatile("dmb oshst" ::: "memory");
#endif
}

/* The owner bit is read before the rest of a completion. */
static inline void from_device(void)
{
#ifdef __x86_64__
	__asm__ volatile("" ::: "memory");
#else
	__asm__ volatile("dmb oshld" ::: "memory");
#endif
}

/* Stores leave the write-combining buffers. */
static inline void flush(void)
{
#ifdef __x86_64__
	__asm__ volatile("sfence" ::: "memory");
#else
	__asm__ volatile("dsb st" ::: "memory");
#endif
}

#endif

/* Orderings between the owner of a queue and the device. */
#ifndef BARRIERS_H
#define BARRIERS_H

/*
 * Earlier stores to memory reach the device before later ones. An x86-64 processor keeps their
 * order; the compiler must keep it as well.
 */
static inline void to_device(void)
{
#ifdef __x86_64__
	__asm__ volatile("" ::: "memory");
#else
	__asm__ volatile("dmb oshst" ::: "memory");
#endif
}

/* Reads the owner bit before the rest of a completion. */
static inline void from_device(void)
{
#ifdef __x86_64__
	__asm__ volatile("" ::: "memory");
#else
	__asm__ volatile("dmb oshld" ::: "memory");
#endif
}

/* Empties the write-combining buffers. */
static inline void flush(void)
{
#ifdef __x86_64__
	__asm__ volatile("sfence" ::: "memory");
#else
	__asm__ volatile("dsb st" ::: "memory");
#endif
}

#endif

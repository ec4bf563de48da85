/* Hides instructions of an x86-64 processor from a process, so that it computes as on an older one (Linux).
 *
 * `benchmarks/processor_kinds.py` compiles this file and loads it with LD_PRELOAD. ONNX Runtime, NumPy, BLAS and LLVM
 * choose their kernels by the instruction CPUID. The kernel of Linux lets a process make CPUID fault
 * (arch_prctl, ARCH_CPUID; flag cpuid_fault in /proc/cpuinfo). The handler answers in its stead, without the
 * bits of AMX, and for VCS_CPUID_LIMIT=avx2 without those of AVX-512.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define SET_CPUID 0x1012 /* ARCH_CPUID */

static int without_avx512;

static long allow(int on) { return syscall(SYS_arch_prctl, SET_CPUID, on); }

static void answer(int signal_number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const uint8_t *at = (const uint8_t *)registers[REG_RIP];
    uint32_t leaf = (uint32_t)registers[REG_RAX], part = (uint32_t)registers[REG_RCX], a, b, c, d;
    (void)info;
    if (at[0] != 0x0F || at[1] != 0xA2) { /* a true fault: it comes again, and ends the process */
        signal(signal_number, SIG_DFL);
        return;
    }
    allow(1);
    __asm__ volatile("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(leaf), "c"(part));
    allow(0);
    if (leaf == 7 && part == 0) {
        d &= ~(1u << 22 | 1u << 24 | 1u << 25); /* AMX */
        if (without_avx512) {
            b &= ~(1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 30 | 1u << 31);
            c &= ~(1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14);
            d &= ~(1u << 2 | 1u << 3 | 1u << 8 | 1u << 23);
        }
    } else if (leaf == 7 && part == 1) {
        a &= ~(1u << 21);                                              /* AMX */
        if (without_avx512) a &= ~(1u << 4 | 1u << 5 | 1u << 23);      /* VNNI, BF16, IFMA */
    }
    registers[REG_RAX] = a;
    registers[REG_RBX] = b;
    registers[REG_RCX] = c;
    registers[REG_RDX] = d;
    registers[REG_RIP] += 2;
}

__attribute__((constructor)) static void start(void) {
    const char *limit = getenv("VCS_CPUID_LIMIT");
    struct sigaction action;
    if (!limit) return;
    without_avx512 = !strcmp(limit, "avx2");
    memset(&action, 0, sizeof action);
    action.sa_sigaction = answer;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, NULL);
    if (allow(0)) {
        perror("arch_prctl");
        _exit(75);
    }
}

/* A library whose callers, lines and inlined functions are known. Its names of Rust and C++ are
   made by hand, for only how they are written counts. */
typedef int (*callback)(void);

static __attribute__((noinline)) int called_last(callback call) {
    int result = call(); /* line called_last */
    return result + 1;
}

static inline __attribute__((always_inline)) int inlined(callback call) {
    int result = called_last(call); /* line inlined */
    return result + 1;
}

__attribute__((noinline)) int called_first(callback call) {
    int result = inlined(call); /* line called_first */
    return result + 1;
}

int rust_like(callback call) __asm__("_ZN5crate6module8function17h0123456789abcdefE");
__attribute__((noinline)) int rust_like(callback call) {
    return called_first(call) + 1; /* line rust_like */
}

int cpp_like(callback call) __asm__("_ZN5space4Type6methodEi");
__attribute__((noinline, cold)) int cpp_like(callback call) {
    return rust_like(call) + 1; /* line cpp_like */
}

/* What calls a cold function is put elsewhere. */
__attribute__((noinline)) int splits(callback call, int number) {
    if (__builtin_expect(number == 7, 0)) {
        int result = cpp_like(call); /* line splits */
        return result * 3 + number;
    }
    return number ^ 1;
}

int enter(callback call) {
    return splits(call, 7) + 1; /* line enter */
}

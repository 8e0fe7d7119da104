/* A program that is no Python: when it has worked for a while it loads one, and runs a script on
   a thread of its own, so that Python's main thread is not the process's.

   usage: embed LIBPYTHON[,SECOND LIBPYTHON] SCRIPT ARGUMENT...

   A second library is started as well, before the first and with symbols of its own, and left
   idle: two interpreters that know nothing of each other. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int count;
static char **words;

static void *load(const char *path, int how) {
    void *library = dlopen(path, RTLD_NOW | how);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return library;
}

static void *python(void *unused) {
    (void)unused;
    char *second = strchr(words[1], ',');
    if (second) {
        *second++ = 0;
        void *library = load(second, RTLD_LOCAL | RTLD_DEEPBIND);
        ((void (*)(int))dlsym(library, "Py_InitializeEx"))(0);
        ((void *(*)(void))dlsym(library, "PyEval_SaveThread"))();
    }
    /* Its extension modules ask the program for its symbols. */
    void *library = load(words[1], RTLD_GLOBAL);
    int (*run)(int, char **) = (int (*)(int, char **))dlsym(library, "Py_BytesMain");
    exit(run(count - 1, words + 1));
}

volatile long work;

int main(int argc, char **argv) {
    count = argc;
    words = argv;
    struct timespec used;
    do {
        for (int i = 0; i < 100000; i++)
            work++;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    } while (used.tv_sec == 0 && used.tv_nsec < 200 * 1000 * 1000);
    pthread_t thread;
    pthread_create(&thread, NULL, python, NULL);
    pthread_join(thread, NULL);
    return 0;
}

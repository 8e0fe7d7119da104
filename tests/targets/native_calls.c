/* Calls that are known, between Python and C: c_call, c1, c2, then c_spin, then back.

   With Python.h it is an extension module; without, a library for ctypes. */
#ifdef EXTENSION
#include <Python.h>
#else
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define APART __attribute__((noinline))
#define INSIDE static inline __attribute__((always_inline))

#ifdef EXTENSION
typedef PyObject *Back;

INSIDE long call_back(Back back) {
    PyObject *result = PyObject_CallObject(back, NULL);
    Py_XDECREF(result);
    return result != NULL;
}
#else
typedef long (*Back)(void);

INSIDE long call_back(Back back) {
    return back() + 1;
}
#endif

volatile long turns;

APART void c_spin(long count) {
    for (long turn = 0; turn < count; turn++)
        turns++;
}

/* What is added keeps each call from becoming a jump. */
APART long c2(Back back, long count) {
    c_spin(count);
    return call_back(back) + 1;
}

APART long c1(Back back, long count) {
    return c2(back, count) + 1;
}

/* A thread that Python knows nothing of. */
APART void c_work(double seconds) {
    struct timespec used;
    do {
        c_spin(100000);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    } while ((double)used.tv_sec + (double)used.tv_nsec / 1e9 < seconds);
    turns++;
}

static long tid;
static double seconds;

static void *c_thread(void *unused) {
    tid = syscall(SYS_gettid);
    c_work(seconds);
    return unused;
}

/* Its kernel id, when it is over. */
long c_beside(double for_seconds) {
    pthread_t thread;
    seconds = for_seconds;
    pthread_create(&thread, NULL, c_thread, NULL);
    pthread_join(thread, NULL);
    return tid;
}

#ifdef EXTENSION
static PyObject *c_call(PyObject *self, PyObject *arguments) {
    Back back;
    long count;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "Ol", &back, &count))
        return NULL;
    long result = c1(back, count);
    return PyErr_Occurred() ? NULL : PyLong_FromLong(result);
}

static PyMethodDef methods[] = {{"c_call", c_call, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "native_calls", NULL, -1, methods,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_native_calls(void) {
    return PyModule_Create(&module);
}
#else
long c_call(Back back, long count) {
    return c1(back, count) + 1;
}
#endif

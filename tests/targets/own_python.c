/* Python's whole interpreter in a program of another name: linked with its static library. */
int Py_BytesMain(int, char **);

int main(int argc, char **argv) {
    return Py_BytesMain(argc, argv);
}

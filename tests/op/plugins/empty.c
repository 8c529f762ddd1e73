/* A shared object that is no back end, for test_backend_plugin. */
extern const int farthing_nothing;
const int farthing_nothing = 1;

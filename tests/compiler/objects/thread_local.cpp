thread_local int of_thread = 3;
extern "C" int value_of_thread() { return ++of_thread; }

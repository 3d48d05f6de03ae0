// Points each function that the opened library has to it.
void nvmllink_fill(void *library);

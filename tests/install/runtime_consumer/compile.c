/* compile MODEL PACKAGE */
#include <stdio.h>

#include "tensorbox/c.h"

int main(int argc, char** argv) {
  tbx_error* error = NULL;
  tbx_session* session = argc > 2 ? tbx_compile(argv[1], NULL, &error) : NULL;
  if (!session || tbx_save(session, argv[2], "avx2,sse", &error) != 0) {
    fprintf(stderr, "%s\n", tbx_error_text(error));
    return 1;
  }
  tbx_session_free(session);
  return 0;
}

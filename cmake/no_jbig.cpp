// libjbig.so.0 of wheels, in the place of JBIG-KIT, whose licence (GPL) a wheel cannot have: libtiff wants
// these names, and reads or writes no image with JBIG compression through them. Such an image is then an
// error of libtiff.
extern "C" {
void jbg_dec_init(void*) {}
int jbg_dec_in(void*, unsigned char*, unsigned long, unsigned long*) { return 3; }
void* jbg_dec_getimage(const void*, int) { return nullptr; }
unsigned long jbg_dec_getsize(const void*) { return 0; }
void jbg_dec_free(void*) {}
void jbg_enc_init(void*, unsigned long, unsigned long, int, unsigned char**,
                  void (*)(unsigned char*, unsigned long, void*), void*) {}
void jbg_enc_out(void*) {}
void jbg_enc_free(void*) {}
int jbg_newlen(unsigned char*, unsigned long) { return 3; }
const char* jbg_strerror(int) { return "JBIG compression is not supported here"; }
}

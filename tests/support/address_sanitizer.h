// Whether a test runs under clang's address sanitizer, which holds freed memory back.
#pragma once

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HEED_ADDRESS_SANITIZER 1
#endif
#endif

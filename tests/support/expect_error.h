// Checks that a call throws one type of error, with every given piece in its text.
#pragma once

#include <initializer_list>
#include <string>

#include <gtest/gtest.h>

namespace heed::test {

template <class ErrorType, class Call>
void expect_error(Call&& call, std::initializer_list<std::string> pieces) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const ErrorType& error) {
    const std::string text = error.what();
    for (const std::string& piece : pieces)
      EXPECT_NE(text.find(piece), std::string::npos) << "'" << piece << "' is not in: " << text;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another type was thrown: " << error.what();
  }
}

}  // namespace heed::test

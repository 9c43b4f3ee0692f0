// Locales with a decimal comma and points between thousands, as a program may take over from its user.
#pragma once

#include <clocale>
#include <initializer_list>
#include <locale>
#include <string>

namespace heed::test {

/// The global std::locale while it lives; it needs none that is installed.
class ForeignLocale {
 public:
  ForeignLocale() : before_(std::locale::global(std::locale(std::locale::classic(), new Numbers))) {}
  ~ForeignLocale() { std::locale::global(before_); }
  ForeignLocale(const ForeignLocale&) = delete;
  ForeignLocale& operator=(const ForeignLocale&) = delete;

 private:
  struct Numbers : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
    std::string do_truename() const override { return "wahr"; }
  };
  std::locale before_;
};

/// C's locale while it lives, if one of these is installed.
class ForeignCLocale {
 public:
  ForeignCLocale() : before_(std::setlocale(LC_ALL, nullptr)) {
    for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "de_DE", "fr_FR.UTF-8", "tr_TR.UTF-8"})
      if (!found_) found_ = std::setlocale(LC_ALL, name) && *std::localeconv()->decimal_point == ',';
  }
  ~ForeignCLocale() { std::setlocale(LC_ALL, before_.c_str()); }
  ForeignCLocale(const ForeignCLocale&) = delete;
  ForeignCLocale& operator=(const ForeignCLocale&) = delete;

  bool found() const { return found_; }

 private:
  std::string before_;
  bool found_ = false;
};

}  // namespace heed::test

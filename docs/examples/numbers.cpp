// Numbers in English and in German: writes 2,000 different ones of 1 to 999,999 to numbers.tsv, a pair a
// line.
#include <cstdint>
#include <fstream>
#include <iostream>
#include <set>
#include <string>

const char* const kEnglish[] = {"",        "one",     "two",       "three",    "four",
                                "five",    "six",     "seven",     "eight",    "nine",
                                "ten",     "eleven",  "twelve",    "thirteen", "fourteen",
                                "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
const char* const kEnglishTens[] = {"",      "",      "twenty",  "thirty", "forty",
                                    "fifty", "sixty", "seventy", "eighty", "ninety"};
const char* const kGerman[] = {"",         "ein",      "zwei",     "drei",     "vier",
                               "fünf",     "sechs",    "sieben",   "acht",     "neun",
                               "zehn",     "elf",      "zwölf",    "dreizehn", "vierzehn",
                               "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn"};
const char* const kGermanTens[] = {"",        "",        "zwanzig", "dreißig", "vierzig",
                                   "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"};

std::string english(int n) {
  if (n >= 1000)
    return english(n / 1000) + " thousand" +
           (n % 1000 ? (n % 1000 < 100 ? " and " : " ") + english(n % 1000) : "");
  if (n >= 100) return english(n / 100) + " hundred" + (n % 100 ? " and " + english(n % 100) : "");
  if (n >= 20) return std::string(kEnglishTens[n / 10]) + (n % 10 ? std::string("-") + kEnglish[n % 10] : "");
  return kEnglish[n];
}

// As the first part of a longer word: "einundzwanzig", and "ein" where "eins" would end it.
std::string german(int n) {
  if (n >= 1000) return german(n / 1000) + "tausend" + german(n % 1000);
  if (n >= 100) return german(n / 100) + "hundert" + german(n % 100);
  if (n >= 20) return (n % 10 ? std::string(kGerman[n % 10]) + "und" : "") + kGermanTens[n / 10];
  return kGerman[n];
}

int main() {
  std::ofstream file("numbers.tsv");
  std::set<int> known;
  for (uint64_t state = 1; known.size() < 2000;) {
    state = state * 6364136223846793005 + 1442695040888963407;
    const int digits = 1 + int(state >> 61) % 6;  // as many short numbers as long ones, as far as there are
    int most = 10;
    for (int d = 1; d < digits; ++d) most *= 10;
    const int n = 1 + int((state >> 33) % uint64_t(most - 1));
    if (!known.insert(n).second) continue;
    file << english(n) << '\t' << german(n) << (n % 100 == 1 ? "s" : "") << '\n';
  }
  for (const int n : {21, 201, 4721})
    std::cout << english(n) << "  ->  " << german(n) << (n % 100 == 1 ? "s" : "") << '\n';
}

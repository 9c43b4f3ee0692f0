# cmake -DFOLDER=… -DKIND=… -DLEAST=n -P: adds up the checks of one kind that the test programs noted in FOLDER, and fails
# where there are fewer than LEAST.
file(GLOB notes ${FOLDER}/*.${KIND})
set(found 0)
foreach(note ${notes})
  file(READ ${note} count)
  math(EXPR found "${found} + ${count}")
endforeach()
if(found LESS LEAST)
  message(FATAL_ERROR "${found} ${KIND} in ${FOLDER}; expected at least ${LEAST}")
endif()
message(STATUS "${found} ${KIND}")

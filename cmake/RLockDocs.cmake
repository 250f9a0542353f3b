# SPDX-License-Identifier: Apache-2.0
# The target rlock_docs: guides and API documentation in <build>/docs/html; a warning is an error, and so is a dead link or a
# timeline that is not what its text says.
find_package(Doxygen REQUIRED OPTIONAL_COMPONENTS dot)
find_package(Python3 REQUIRED COMPONENTS Interpreter)

if(Doxygen_dot_FOUND)
  set(RLOCK_DOXYGEN_HAVE_DOT YES)
else()
  set(RLOCK_DOXYGEN_HAVE_DOT NO)
endif()
configure_file(
  "${PROJECT_SOURCE_DIR}/docs/Doxyfile.in"
  "${PROJECT_BINARY_DIR}/Doxyfile"
  @ONLY)
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/docs")
add_custom_target(rlock_docs
  COMMAND Python3::Interpreter "${PROJECT_SOURCE_DIR}/docs/timelines/draw.py" --check
  COMMAND Doxygen::doxygen "${PROJECT_BINARY_DIR}/Doxyfile"
  COMMAND Python3::Interpreter "${PROJECT_SOURCE_DIR}/docs/check_site.py" "${PROJECT_BINARY_DIR}/docs/html"
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
  COMMENT "Generating API documentation"
  VERBATIM)

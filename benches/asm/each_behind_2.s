    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    mov rax,QWORD PTR [rdi]
    mov rdx,QWORD PTR [rdi+0x8]
    mov r8,QWORD PTR [rax+0xa8]
    mov r10,QWORD PTR [rax+0xb0]
    mov r9,QWORD PTR [rax+0xb8]
    cmp r8,r10
    je 4
    mov ecx,DWORD PTR [rdi+0x10]
    mov r15,QWORD PTR [rax+0x40]
    mov rbx,QWORD PTR [rax+0xc0]
    sub rbx,r9
    and ecx,0x3f
    mov r14,QWORD PTR [rsi+0x18]
    mov r11,QWORD PTR [rsi]
    mov QWORD PTR [rsp-0x8],r11
    mov r11,QWORD PTR [rsi+0x8]
    mov QWORD PTR [rsp-0x10],r11
    mov rsi,QWORD PTR [rsi+0x10]
    mov QWORD PTR [rsp-0x18],rsi
    jmp 3
0:
    inc QWORD PTR [r14+0xb0]
1:
    mov rsi,QWORD PTR [rsp-0x18]
    inc QWORD PTR [rsi]
2:
    add r9,r13
    add r8,r15
    add rdx,rbp
    cmp r8,r10
    je 4
3:
    mov esi,DWORD PTR [r8+0x3c]
    bswap esi
    xor esi,r9d
    test esi,0xffff00fd
    jne 4
    mov esi,DWORD PTR [r8+0x20]
    cmp esi,DWORD PTR [rax+0x30]
    jne 4
    mov esi,DWORD PTR [r8+0x2c]
    bswap esi
    mov r13d,esi
    and r13d,0xffff0000
    je 4
    sub rbx,r13
    jb 4
    movzx esi,si
    mov rbp,r13
    shr rbp,cl
    cmp rbp,rsi
    jb 4
    cmp esi,0xc
    jb 2
    mov r12,QWORD PTR [rsp-0x8]
    movzx r11d,WORD PTR [r12+0x4]
    mov WORD PTR [rdx+0x4],r11w
    mov r11d,DWORD PTR [r12]
    mov DWORD PTR [rdx],r11d
    mov r12,QWORD PTR [rsp-0x10]
    mov r11d,DWORD PTR [r12]
    mov DWORD PTR [rdx+0x6],r11d
    movzx r11d,WORD PTR [r12+0x4]
    mov WORD PTR [rdx+0xa],r11w
    cmp esi,0xe
    jb 0
    mov r11,QWORD PTR [r14+0x80]
    cmp r11,QWORD PTR [r14+0x78]
    jae 0
    mov QWORD PTR [rsp-0x20],rdi
    mov rdi,QWORD PTR [r14+0x70]
    mov QWORD PTR [rsp-0x28],r15
    mov r15,r11
    shl r15,0x4
    mov QWORD PTR [rdi+r15*1],rdx
    mov DWORD PTR [rdi+r15*1+0x8],esi
    mov r15,QWORD PTR [rsp-0x28]
    mov rdi,QWORD PTR [rsp-0x20]
    inc r11
    mov QWORD PTR [r14+0x80],r11
    jmp 1
4:
    mov QWORD PTR [rax+0xa8],r8
    mov QWORD PTR [rax+0xb8],r9
    mov QWORD PTR [rdi+0x8],rdx
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
